// Home of the precompiled header of standard headers.
