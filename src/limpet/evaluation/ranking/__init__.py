"""The counting engine: where the relevant items of a gallery rank, exactly and in bounded memory."""
