-- Items of one category that people of three states offer.
Register Relation Category (category integer, name text, parent integer);
Register Relation Item (item integer, name text, category integer);
Register Relation Person (person integer, name text, city text, state text);
Register Stream OpenAuction (item integer, seller integer, start_price number);
Register Stream ClosedAuction (item integer, buyer integer);
Register Stream Bid (item integer, bidder integer, price number);

Select Rstream(p.name, p.city, p.state, a.item)
From OpenAuction [Now] a, Person p, Item i
Where a.seller = p.person And a.item = i.item And i.category = 10 And p.state In ('OR', 'ID', 'CA')
