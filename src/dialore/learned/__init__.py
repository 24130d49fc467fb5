"""Small models that `dialore train` grows with LightGBM, and their use. Needs the extra `learn`.

`dialore.trained.load_trained` opens them; nothing here is imported before.
"""
