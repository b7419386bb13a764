"""Real object-store servers, a Kafka broker and a schema registry on the loopback address, and a
proxy that makes object stores fail.

Each server is started when the first test of a process asks for it, and ends with that process,
however that ends. An object store must first pass the proof in `proof.py`.
"""
