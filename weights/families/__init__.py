"""One small file a family: foreign config -> Config, foreign tensor names -> ours. None of them needs torch."""
