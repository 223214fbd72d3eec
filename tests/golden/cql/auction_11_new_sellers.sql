-- People who are new and offer something within twelve hours.
Register Relation Category (category integer, name text, parent integer);
Register Relation Item (item integer, name text, category integer);
Register Relation Person (person integer, name text, city text, state text);
Register Stream OpenAuction (item integer, seller integer, start_price number);
Register Stream ClosedAuction (item integer, buyer integer);
Register Stream Bid (item integer, bidder integer, price number);

Select Istream(p.person, p.name, o.item)
From Istream(Select person, name From Person) [Range 12 Hours] p, OpenAuction [Range 12 Hours] o
Where p.person = o.seller
