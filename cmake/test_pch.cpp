// The source file that owns the precompiled header shared by all test programs.
