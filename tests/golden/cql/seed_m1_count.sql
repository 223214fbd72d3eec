-- Requests to one domain within the last day (Motwani and others, section 2.2): a relation.
Register Stream Requests (client_id integer, domain text, URL text) Rate 50 Per Second;

Select Count(*) From Requests S [Range 1 Day Preceding] Where S.domain = 'stanford.edu'
