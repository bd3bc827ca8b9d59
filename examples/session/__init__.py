"""A reference session that keeps the AI agent contract in its three transports. See README.md."""
