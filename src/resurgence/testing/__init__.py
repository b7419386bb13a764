"""Fault points and the tools of drills: part of the product."""
