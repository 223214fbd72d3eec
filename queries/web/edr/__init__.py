"""OGC API - Environmental Data Retrieval 1.1 (OGC 19-086r6): stations and saved surfaces."""

from queries.web.edr.collections import Collections
from queries.web.edr.routes import router

__all__ = ["Collections", "router"]
