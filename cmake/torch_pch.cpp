// The source file that owns the precompiled header shared by all files that include torch.
