"""One thing each that users do with a program: load, build, trace, differentiate, batch, compile, shard, describe it."""
