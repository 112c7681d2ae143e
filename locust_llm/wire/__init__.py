"""Wire decoding without I/O: bytes and their times in, token events out."""
