"""Realistic traces for each contract template, written from the documentation by somebody who has not read the templates."""
