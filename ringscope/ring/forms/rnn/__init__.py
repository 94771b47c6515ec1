"""Recurrent layers as one loop there and one back."""
