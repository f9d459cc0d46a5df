CREATE TABLE article_cache (id text PRIMARY KEY, title text NOT NULL, version integer NOT NULL);
CREATE TABLE article_words (word text NOT NULL, id text NOT NULL, PRIMARY KEY (word, id));

-- only for the loop that loses messages, to be compared with
CREATE TABLE naive_articles (id text PRIMARY KEY);
