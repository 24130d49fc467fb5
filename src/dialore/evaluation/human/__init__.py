"""Human evaluation: blind sheets for annotators, their answers read back, agreement and significance."""
