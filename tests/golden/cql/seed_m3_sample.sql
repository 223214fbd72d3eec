-- A query in From is a stream; a tenth of it is taken; the result is a stream by default.
Register Stream Requests (client_id integer, domain text, URL text) Rate 50 Per Second;
Register Relation Domains (domain text, type text);

Select T.URL
From (Select client_id, URL From Requests S, Domains R Where S.domain = R.domain And R.type = 'commerce') T Sample(10)
Where T.client_id Between 1 And 1000
