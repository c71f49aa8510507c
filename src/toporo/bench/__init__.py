"""The paper's tables: protocols as data, resumable runs, rows."""
