-- Auctions that are open: a relation.
Register Relation Category (category integer, name text, parent integer);
Register Relation Item (item integer, name text, category integer);
Register Relation Person (person integer, name text, city text, state text);
Register Stream OpenAuction (item integer, seller integer, start_price number);
Register Stream ClosedAuction (item integer, buyer integer);
Register Stream Bid (item integer, bidder integer, price number);

Select * From OpenAuction Where item Not In (Select item From ClosedAuction)
