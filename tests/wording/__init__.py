"""The check of names and prose against ``docs/glossary.md``, which ``./millrace lint`` runs."""
