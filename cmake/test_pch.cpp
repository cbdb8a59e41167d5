// Home of the precompiled header that every test program shares.
