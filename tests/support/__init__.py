"""What several test modules share: reference models and builders."""
