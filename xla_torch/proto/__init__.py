"""HLO protos (`HloModuleProto`, `HloProto`, snapshots) to modules and back, on a schema of our own. Knows no torch."""
