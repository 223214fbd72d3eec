-- Items with most bids of the past hour, each minute.
Register Relation Category (category integer, name text, parent integer);
Register Relation Item (item integer, name text, category integer);
Register Relation Person (person integer, name text, city text, state text);
Register Stream OpenAuction (item integer, seller integer, start_price number);
Register Stream ClosedAuction (item integer, buyer integer);
Register Stream Bid (item integer, bidder integer, price number);
Create View HourlyBids As Select item, count(*) As bids From Bid [Range 1 Hour Slide 1 Minute] Group By item;

Select Rstream(item, bids) From HourlyBids Where bids = (Select max(bids) From HourlyBids)
