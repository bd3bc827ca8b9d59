"""A second reading of the formula language, which shares no code with `mat.monitor`, and random pairs that compare the two."""
