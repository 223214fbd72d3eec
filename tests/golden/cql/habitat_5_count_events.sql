-- Events of the last hour by kind.
Register Stream Sensors (sensor integer, x number 'm', y number 'm', light number 'lux', temperature number 'degC') Rate 20 Per Second;
Register Stream Events (event integer, kind text, x number 'm', y number 'm');

Select kind, count(*) As events From Events [Range 1 Hour] Group By kind
