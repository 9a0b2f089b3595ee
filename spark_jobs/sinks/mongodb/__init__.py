"""The MongoDB sink: a document per row, replaced only by a newer change."""
