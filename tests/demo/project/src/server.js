// A web server of three lines; the demo edits it.
const express = require('express');
const app = express();
app.get('/', (request, response) => response.send('hello from the old version'));
module.exports = app;
