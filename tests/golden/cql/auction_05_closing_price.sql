-- The price at which an auction closes.
Register Relation Category (category integer, name text, parent integer);
Register Relation Item (item integer, name text, category integer);
Register Relation Person (person integer, name text, city text, state text);
Register Stream OpenAuction (item integer, seller integer, start_price number);
Register Stream ClosedAuction (item integer, buyer integer);
Register Stream Bid (item integer, bidder integer, price number);
Create View ClosingPrice As
Select Rstream(c.item, p.price)
From ClosedAuction [Now] c,
     (Select item, max(price) As price
      From (Select item, price From Bid Union All Select item, start_price From OpenAuction) b Group By item) p
Where c.item = p.item;

Select * From ClosingPrice
