"""Delegation as MCP tools: for a parent that is an agent and speaks the Model Context Protocol."""
