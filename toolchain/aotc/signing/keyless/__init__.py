"""Signing without a kept key: identity tokens, and the services that certify one for minutes."""
