"""Parts of Spark plans that cost little to build again in every epoch."""
