"""A small helpdesk run by three agents: planner, verifier and mailer. See README.md."""
