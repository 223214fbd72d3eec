-- Highest bid of ten minutes, each ten minutes.
Register Relation Category (category integer, name text, parent integer);
Register Relation Item (item integer, name text, category integer);
Register Relation Person (person integer, name text, city text, state text);
Register Stream OpenAuction (item integer, seller integer, start_price number);
Register Stream ClosedAuction (item integer, buyer integer);
Register Stream Bid (item integer, bidder integer, price number);

Select Rstream(item, price) From Bid [Range 10 Minutes Slide 10 Minutes]
Where price = (Select max(price) From Bid [Range 10 Minutes Slide 10 Minutes])
