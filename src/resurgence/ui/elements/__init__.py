"""Elements that NiceGUI lacks, each with a small JavaScript component."""
