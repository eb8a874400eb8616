"""Programs for several partitions with their global meaning: manual regions run for all partitions at once."""
