"""Block diffusion: left to right between blocks, any order inside one."""
