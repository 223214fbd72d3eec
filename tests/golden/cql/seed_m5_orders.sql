-- Orders with their fulfillments.
Register Stream Orders (orderID integer, itemID integer, amount number);
Register Stream Fulfillments (orderID integer, itemID integer);

Select * From Orders O, Fulfillments F Where O.orderID = F.orderID And O.itemID = F.itemID
