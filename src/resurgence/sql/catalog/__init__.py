"""What a pipeline declares: tables, their columns, and the relations that queries read."""
