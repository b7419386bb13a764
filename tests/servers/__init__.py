"""Real object-store servers on the loopback address, and a proxy that makes them fail.

Each server is started when the first test of a process asks for it, and ends with that process,
however that ends. Before any test may use it, it must pass the proof in `proof.py`.
"""
