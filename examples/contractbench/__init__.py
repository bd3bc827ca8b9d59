"""The 33 tasks of ContractBench on the boundaries of pytest-mat: observation contracts, in time and byte by byte."""
