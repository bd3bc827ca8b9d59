"""The treasury of a small company: buyers, a payments clerk, a researcher and a payer. See README.md."""
