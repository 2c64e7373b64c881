<%@ Page Language="C#" %><%
  // What came in, and how long the body was.
  Response.ContentType = "text/plain";
  Response.Write("hello from mono: " + Request.HttpMethod + " query=" + Request.QueryString + " body=" + Request.InputStream.Length + "\n");
%>
