"""The controllers of one service: which of them owns which job."""
