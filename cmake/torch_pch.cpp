// Home of the precompiled header that every file with torch shares.
