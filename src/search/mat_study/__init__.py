"""The study of one test item: what to execute and what it means, over an Evaluator that others supply. Knows no pytest."""
