// The source file that owns the precompiled header of standard headers.
