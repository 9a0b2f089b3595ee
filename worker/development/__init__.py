"""Commands for people who work on Millrace, and the pages that are made from declarations."""
