-- Vineyards where kriged frost is sure to two standard deviations.
Register Relation surface_frost (x number, y number, value number 'degC', variance number);
Register Relation vineyards (name text, shape text) Static;

Select v.name, min(c.value) as coldest From surface_frost c, vineyards v
Where inside(c.x, c.y, v.shape) and c.value + 2 * sqrt(c.variance) < 0 Group By v.name
